package engine

import (
	"context"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/schema"
)

// News is what processes tell each other: it may be lost, and come late or more than once. It is of one of both.
type News struct {
	Queue  string    // of which there are jobs to be taken; AnyQueue: of some; if it was heard, its Topic
	Member member.ID // who has been left word for
}

// Topic is what a notification says of a queue. It is empty for AnyQueue.
func Topic(queue string) string {
	if queue == AnyQueue {
		return AnyQueue
	}
	return schema.Topic(queue)
}

// AnyQueue stands for all.
const AnyQueue = ""

// IsOfJobs tells that it is not of a member.
func (n News) IsOfJobs() bool { return n.Member == (member.ID{}) }

// Herald takes news from process to process. Where it can't, both of its calls return an error that is dblock.ErrUnsupported.
type Herald interface {
	// Tell tells all others who listen.
	Tell(ctx context.Context, news []News) error

	// Listen calls heard with what others tell, and with what is told in callers' transactions, until ctx ends or the connection does. It
	// calls ready first: nothing that is told from then on is missed. Both are called on the caller's goroutine.
	Listen(ctx context.Context, ready func(), heard func(News)) error
}
