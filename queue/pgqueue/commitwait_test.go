package pgqueue_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestACommitWaitsAsTheHostSays has a deferred trigger record lock_timeout at the commit of a job
// with a key. The end of the job has a bound of its own for its rows.
func TestACommitWaitsAsTheHostSays(t *testing.T) {
	t.Parallel()
	host := testdb.MigratedPostgres(t)
	_, err := host.Exec(t.Context(), `CREATE TABLE seen (at text, wait text);
		CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO seen VALUES ('commit', current_setting('lock_timeout')); RETURN NULL; END $$;
		CREATE TABLE work (id int);
		CREATE CONSTRAINT TRIGGER see AFTER INSERT ON work DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()`)
	require.NoError(t, err)
	q, err := pgqueue.New(t.Context(), host, queue.Options{})
	require.NoError(t, err)
	defer func() { _ = q.Close(context.Background()) }()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	require.NoError(t, pgqueue.HandleTx(q, "k", func(ctx context.Context, tx pgx.Tx, _ queue.Job[string]) error {
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '7min'; INSERT INTO work VALUES (1)")
		return err
	}))
	_, err = q.EnqueueMany(ctx, []queue.Task{{Kind: "k", Args: "x", Unique: "one"}})
	require.NoError(t, err)
	worked := make(chan error, 1)
	go func() { worked <- q.Work(ctx, queue.WorkerOptions{}) }()
	var wait string
	for wait == "" && ctx.Err() == nil {
		_ = host.QueryRow(ctx, "SELECT wait FROM seen").Scan(&wait)
	}
	end()
	require.NoError(t, <-worked)
	assert.Equal(t, "7min", wait)
}
