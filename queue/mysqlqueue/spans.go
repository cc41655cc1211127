package mysqlqueue

import (
	"math"

	"github.com/dblock-go/dblock/queue/internal/engine"
)

// span is from where on a claim looks at the jobs of one priority, the last one that there is a mark for, as a backlog is there; the
// others it looks at whole. More of them would make statements of many shapes.
func span(from []engine.Mark) (priority int16, us int64) {
	if len(from) == 0 {
		return math.MinInt16, 0
	}
	last := from[len(from)-1]
	return last.Priority, last.ReadyAt.UnixMicro()
}
