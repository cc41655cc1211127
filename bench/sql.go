package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/pgscript"
)

// SQLScenario runs a script of pgbench; one operation is the whole script. setup is SQL that is run
// once before, and may be empty.
//
// It is what `pgbench -M prepared` does, so that the two can be compared: new connections in each
// round, statements that are prepared at their first use, parameters sent as text, and every answer
// waited for. Where there are fewer connections than callers, they take turns with them.
func SQLScenario(file string, script *pgscript.Script, setup string) Scenario {
	return Scenario{
		Name: "sql", About: "the script " + file,
		Open: func(ctx context.Context, env *Env) (Workload, error) {
			if env.Kind == devdb.Postgres {
				return openSQLPostgres(ctx, env, script, setup)
			}
			return openSQLMySQL(ctx, env, script, setup)
		},
	}
}

// scriptConn is a connection on which a script runs. It belongs to one caller at a time.
type scriptConn interface {
	// begin has the end of ctx end what is under way, until end.
	begin(ctx context.Context) error
	end()

	// exec runs a statement, the nth command of the script, and throws its rows away.
	exec(ctx context.Context, n int, q *pgscript.SQL, vars *pgscript.Session) error

	// failure is what an error of exec is counted as; "" if it ends the run.
	failure(err error) string

	rollback(ctx context.Context) error

	// inTransaction tells it of the moment, at the end of the script.
	inTransaction(ctx context.Context) (bool, error)

	close() error
}

// sqlWorkload is a script on its connections.
type sqlWorkload struct {
	env    *Env
	script *pgscript.Script
	dial   func(context.Context) (scriptConn, error)
	done   func() error // closes what dial uses

	conns []scriptConn // of the last round
}

func (w *sqlWorkload) Close() error { return errors.Join(w.hangUp(), w.done()) }

func (w *sqlWorkload) hangUp() error {
	var errs []error
	for _, conn := range w.conns {
		errs = append(errs, conn.close())
	}
	w.conns = nil
	return errors.Join(errs...)
}

func (w *sqlWorkload) Round(ctx context.Context, n int) (Round, error) {
	if err := w.hangUp(); err != nil {
		return Round{}, err
	}
	free := make(turns[scriptConn], min(w.env.Clients, w.env.Conns))
	for range cap(free) {
		conn, err := w.dial(ctx)
		if err != nil {
			return Round{}, err
		}
		w.conns = append(w.conns, conn)
		free <- conn
	}
	return Round{Client: func(id int) (Op, error) {
		c := &scriptCaller{script: w.script, free: free, vars: w.script.Session(id, w.env.Seed+uint64(n))}
		if w.env.Conns >= w.env.Clients {
			c.own = w.conns[id]
		}
		return c.op, nil
	}}, nil
}

// scriptCaller is one client of pgbench.
type scriptCaller struct {
	script *pgscript.Script
	vars   *pgscript.Session
	own    scriptConn // nil if it has to wait for one
	free   turns[scriptConn]
}

func (c *scriptCaller) op(ctx context.Context) (int, error) {
	conn := c.own
	if conn == nil {
		var err error
		if conn, err = c.free.take(ctx); err != nil {
			return 0, err
		}
		defer func() { c.free <- conn }()
	}
	if err := conn.begin(ctx); err != nil {
		return 0, err
	}
	defer conn.end()
	for n, command := range c.script.Commands {
		if err := c.step(ctx, conn, n, command); err != nil {
			return 0, c.failed(ctx, conn, command, err)
		}
	}
	return 1, c.ended(ctx, conn)
}

func (c *scriptCaller) step(ctx context.Context, conn scriptConn, n int, command pgscript.Command) error {
	switch command := command.(type) {
	case *pgscript.Set:
		return c.vars.Set(command)
	case *pgscript.Sleep:
		d, err := c.vars.Sleep(command)
		if err == nil && !sleepUntil(ctx, time.Now().Add(d)) {
			err = context.Cause(ctx)
		}
		return err
	case *pgscript.SQL:
		return conn.exec(ctx, n, command, c.vars)
	default:
		return fmt.Errorf("a command %T", command)
	}
}

// failed makes the error of a command what the caller is told.
func (c *scriptCaller) failed(ctx context.Context, conn scriptConn, command pgscript.Command, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // the rest is only the echo of it
	}
	if located := new(pgscript.Error); !errors.As(err, &located) {
		err = c.script.Failed(command, err)
	}
	kind := conn.failure(err)
	if kind == "" {
		return err
	}
	if rollback := conn.rollback(ctx); rollback != nil {
		return errors.Join(err, c.script.Failed(command, fmt.Errorf("roll back after it: %w", rollback)))
	}
	return &Failure{Kind: kind, Err: err}
}

var errOpenTransaction = errors.New("the script ends and leaves a transaction open")

func (c *scriptCaller) ended(ctx context.Context, conn scriptConn) error {
	open, err := conn.inTransaction(ctx)
	if err == nil && open {
		err = errOpenTransaction
	}
	if err != nil {
		return c.script.Failed(c.script.Commands[len(c.script.Commands)-1], err)
	}
	return nil
}
