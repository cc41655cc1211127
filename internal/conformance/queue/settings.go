package queue

import (
	"testing"

	"github.com/dblock-go/dblock/queue"
)

// RunWith runs every statement over connections with other settings than the usual. A setting is what makes one DSN of another.
func (e Queue) RunWith(t *testing.T, settings map[string]func(t *testing.T, dsn string) string) {
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := e.env(t)
			d.everything(t, &env{e, setting(t, d.dsn), d.db}, queue.Options{})
			d.empty(t)
			if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 1 {
				t.Errorf("%d are dead", n)
			}
		})
	}
}
