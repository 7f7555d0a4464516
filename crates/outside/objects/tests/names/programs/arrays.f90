! Arrays whose indices begin at 1, at 100, and at -2. The first index of a matrix changes from one
! element to the next.
module data
  implicit none
  integer(8), volatile :: first(8), hundred(100:107), below(-2:3)
  integer(4), volatile :: matrix(2, 5:9)
end module

program arrays
  use data
  implicit none
  first = 1
  hundred = 2
  below = 3
  matrix = 4
  print *, first(1), hundred(100), below(-2), matrix(1, 5)
end program
