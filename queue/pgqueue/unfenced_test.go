package pgqueue

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/queue"
)

// NewUnfenced is New, but that the statement that finishes jobs does not ask whose they are: the control of the fence.
func NewUnfenced(ctx context.Context, pool *pgxpool.Pool, o queue.Options) (*queue.Queue, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	d, err := open(ctx, pool, o.Schema)
	if err != nil {
		return nil, err
	}
	const fence = "WHERE (a.claim_id IN (SELECT f.claim_id FROM fence f)) IS TRUE"
	if !strings.Contains(d.finish, fence) {
		d.Close()
		return nil, errors.New("the statement has no such fence: " + d.finish)
	}
	d.finish = strings.Replace(d.finish, fence, "", 1)
	return queue.New(d, o)
}
