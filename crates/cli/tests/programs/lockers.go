// Two goroutines that take the read side of locks of their own, which lie next to each other, through an
// interface. The compiler knows what is behind it.
package main

import (
	"fmt"
	"sync"
)

func main() {
	locks := make([]sync.RWMutex, 2)
	var both sync.WaitGroup
	for n := range locks {
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
