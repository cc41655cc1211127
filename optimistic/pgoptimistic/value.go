package pgoptimistic

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/optimistic/internal/engine"
)

// instant is a time as the server reads it, without regard to time zones and to DateStyle.
func instant(micros int64) string {
	return time.UnixMicro(micros).UTC().Format("2006-01-02 15:04:05.999999+00")
}

// expected appends the arguments that a version is compared with.
func expected(args []any, kind engine.Kind, r engine.Raw) []any {
	switch kind {
	case engine.Int:
		return append(args, r.N)
	case engine.Timestamp:
		return append(args, instant(r.N))
	case engine.UUID:
		return append(args, engine.FormatUUID(r.U))
	default:
		return append(args, r.Values...)
	}
}

// version reads one that the columns' own reading (see read) selects.
func version(p *engine.Plan, rows pgx.Rows) (r engine.Raw, void bool, err error) {
	if p.Kind == engine.Columns {
		r.Values, err = rows.Values()
		return r, false, err
	}
	if p.Kind == engine.UUID {
		var text *string
		if err = rows.Scan(&text); err != nil || text == nil {
			return r, err == nil, err
		}
		r.U, err = engine.ParseUUID(*text)
		return r, false, err
	}
	var n *int64
	if err = rows.Scan(&n); err != nil || n == nil {
		return r, err == nil, err
	}
	r.N = *n
	return r, false, nil
}

// rawOf is a version of what pgx has read.
func rawOf(p *engine.Plan, values []any) (r engine.Raw, void bool, err error) {
	if p.Kind == engine.Columns {
		r.Values = values
		return r, false, nil
	}
	switch v := values[0].(type) {
	case nil:
		return r, true, nil
	case int64:
		r.N = v
	case string:
		r.U, err = engine.ParseUUID(v)
	default:
		err = fmt.Errorf("optimistic: a version came as %T", v)
	}
	return r, false, err
}

// array is a list of one type where it can be: pgx has to know it where it does not ask the server for the types.
func array(list []any) any {
	switch list[0].(type) {
	case int64:
		return typed[int64](list)
	case int:
		return typed[int](list)
	case int32:
		return typed[int32](list)
	case string:
		return typed[string](list)
	case bool:
		return typed[bool](list)
	}
	return list
}

func typed[T any](list []any) any {
	all := make([]T, len(list))
	for i, v := range list {
		one, ok := v.(T)
		if !ok {
			return list
		}
		all[i] = one
	}
	return all
}
