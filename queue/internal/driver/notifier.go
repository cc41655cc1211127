package driver

import (
	"context"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/schema"
)

// Notification is a message between processes. It may be lost, and come late or more than once.
// Exactly one field is set, or none: then it is of AnyQueue.
type Notification struct {
	Queue  string    // of which there are jobs to be taken; AnyQueue: of some; if it was received, its Topic
	Member member.ID // the member with a message
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

// IsOfJobs reports that it is not of a member.
func (n Notification) IsOfJobs() bool { return n.Member == (member.ID{}) }

// Notifier takes notifications from process to process. If it can't, the errors of both calls are
// dblock.ErrUnsupported.
type Notifier interface {
	// Notify notifies all others that listen.
	Notify(ctx context.Context, all []Notification) error

	// Listen calls received with what others notify, until ctx ends or the connection does. It
	// calls ready first: nothing that is sent from then on is missed. Both are called on the
	// caller's goroutine.
	Listen(ctx context.Context, ready func(), received func(Notification)) error
}
