package queue

import (
	"sync"
	"time"
)

// sideBySide is how many statements for different queues run at once, if one for all has met a row
// that another transaction has locked.
const sideBySide = 4

// ofEachQueue calls f with the items of each queue, in no order, for several queues at once. It
// begins with none after a while, and returns the items that are left.
func ofEachQueue[T any](items []T, queue func(T) string, within time.Duration, f func(queue string, items []T)) (left []T) {
	all := make(map[string][]T)
	for _, one := range items {
		all[queue(one)] = append(all[queue(one)], one)
	}
	queues := make(chan string)
	var calls sync.WaitGroup
	for range min(sideBySide, len(all)) {
		calls.Go(func() {
			for name := range queues {
				f(name, all[name])
			}
		})
	}
	began := time.Now()
	for name, its := range all {
		if time.Since(began) > within {
			left = append(left, its...)
		} else {
			queues <- name
		}
	}
	close(queues)
	calls.Wait()
	return left
}
