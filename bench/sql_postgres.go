package bench

import (
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/pgscript"
)

func openSQLPostgres(ctx context.Context, env *Env, script *pgscript.Script, setup string) (Workload, error) {
	cfg, err := devdb.ParsePostgres(env.DSN)
	if err != nil {
		return nil, err
	}
	if err := setUpPostgres(ctx, &cfg.ConnConfig.Config, setup); err != nil {
		return nil, err
	}
	return &sqlWorkload{
		env: env, script: script, done: func() error { return nil },
		dial: func(ctx context.Context) (scriptConn, error) {
			w, err := dialWire(ctx, &cfg.ConnConfig.Config)
			if err != nil {
				return nil, err
			}
			return newPostgresScript(env, w, script), nil
		},
	}, nil
}

// setUpPostgres sends the statements one by one, since a VACUUM must stand alone.
func setUpPostgres(ctx context.Context, cfg *pgconn.Config, setup string) error {
	statements, err := pgscript.Statements("setup", setup)
	if err != nil || len(statements) == 0 {
		return err
	}
	w, err := dialWire(ctx, cfg)
	if err != nil {
		return err
	}
	if err := w.begin(ctx); err != nil {
		return errors.Join(err, w.close())
	}
	defer w.end()
	for _, q := range statements {
		err := w.simple(q.Text)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return errors.Join(&pgscript.Error{File: "setup", Line: q.At(), Err: err}, w.close())
		}
	}
	open := w.status != 'I'
	err = w.close()
	if open {
		err = errors.Join(&pgscript.Error{File: "setup", Line: statements[len(statements)-1].At(), Err: errOpenTransaction}, err)
	}
	return err
}

// postgresScript is a script on one connection.
type postgresScript struct {
	*wire
	env      *Env
	names    []string // of the statements, by command
	prepared []bool

	// What param needs, kept here because a function that held it would be allocated each time.
	sql   *pgscript.SQL
	vars  *pgscript.Session
	param func([]byte, int) []byte
}

func newPostgresScript(env *Env, w *wire, script *pgscript.Script) *postgresScript {
	commands := len(script.Commands)
	p := &postgresScript{wire: w, env: env, names: make([]string, commands), prepared: make([]bool, commands)}
	for n := range p.names {
		p.names[n] = "s" + strconv.Itoa(n)
	}
	p.param = func(dst []byte, n int) []byte { return p.vars.Append(dst, p.sql.Vars[n]) }
	return p
}

func (p *postgresScript) exec(_ context.Context, n int, q *pgscript.SQL, vars *pgscript.Session) error {
	if !p.prepared[n] {
		if err := p.prepare(p.names[n], q.Text); err != nil {
			return err
		}
		p.prepared[n] = true
	}
	p.sql, p.vars = q, vars
	p.env.Statements(1)
	p.bind(p.names[n], len(q.Vars), p.param)
	return p.execute()
}

func (p *postgresScript) failure(err error) string {
	if pgErr := new(pgconn.PgError); errors.As(err, &pgErr) {
		switch pgErr.Code {
		case "40001":
			return "serialization"
		case "40P01":
			return "deadlock"
		}
	}
	return ""
}

func (p *postgresScript) rollback(context.Context) error {
	if p.status == 'I' {
		return nil
	}
	p.env.Statements(1)
	return p.simple("ROLLBACK")
}

func (p *postgresScript) inTransaction(context.Context) (bool, error) { return p.status != 'I', nil }
