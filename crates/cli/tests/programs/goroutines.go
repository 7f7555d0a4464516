package main

import (
	"fmt"
	"sync"
	"sync/atomic"
)

type shard struct {
	mu sync.Mutex
	n  int
}

type metrics struct {
	requests atomic.Int64
	errors   atomic.Int64
}

var shards [8]shard

func work(i int, m *metrics, wg *sync.WaitGroup) {
	defer wg.Done()
	s := &shards[i]
	for k := 0; k < 10000000; k++ {
		s.mu.Lock()
		s.n += k
		s.mu.Unlock()
		if i%2 == 0 {
			m.requests.Add(1)
		} else {
			m.errors.Add(1)
		}
	}
}

func main() {
	m := new(metrics)
	var wg sync.WaitGroup
	for i := 0; i < 2; i++ {
		wg.Add(1)
		go work(i, m, &wg)
	}
	wg.Wait()
	fmt.Println(shards[0].n, shards[1].n, m.requests.Load(), m.errors.Load())
}
