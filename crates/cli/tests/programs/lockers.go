// Two goroutines that take the read side of locks of their own, which lie next to each other, through an
// interface. The compiler knows what is behind it.
package main

import (
	"fmt"
	"sync"
)

func main() {
	// As long as three lines, so that it begins at a line: of two alone, one may be the last on a line.
	locks := make([]sync.RWMutex, 8)
	var both sync.WaitGroup
	for n := range 2 {
		both.Add(1)
		go func() {
			defer both.Done()
			own := locks[n].RLocker()
			for range 40000000 {
				own.Lock()
				own.Unlock()
			}
		}()
	}
	both.Wait()
	fmt.Println(len(locks))
}
