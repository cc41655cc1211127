package pgoptimistic

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// instant is a time as the server reads it, without regard to time zones and to DateStyle.
func instant(micros int64) string {
	return time.UnixMicro(micros).UTC().Format("2006-01-02 15:04:05.999999+00")
}

// expected appends the arguments that a version is compared with.
func expected(args []any, kind driver.Kind, r driver.Raw) []any {
	switch kind {
	case driver.Int:
		return append(args, r.N)
	case driver.Timestamp:
		return append(args, instant(r.N))
	case driver.UUID:
		return append(args, driver.FormatUUID(r.U))
	default:
		return append(args, r.Sent...)
	}
}

// version reads one that the columns' own reading (see read) selects.
func version(p *driver.Plan, rows pgx.Rows) (r driver.Raw, void bool, err error) {
	if p.Kind == driver.Columns {
		r.Values, err = rows.Values()
		return r, false, err
	}
	if p.Kind == driver.UUID {
		var text *string
		if err = rows.Scan(&text); err != nil || text == nil {
			return r, err == nil, err
		}
		r.U, err = driver.ParseUUID(*text)
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
func rawOf(p *driver.Plan, values []any) (r driver.Raw, void bool, err error) {
	if p.Kind == driver.Columns {
		r.Values = values
		return r, false, nil
	}
	switch v := values[0].(type) {
	case nil:
		return r, true, nil
	case int64:
		r.N = v
	case string:
		r.U, err = driver.ParseUUID(v)
	default:
		err = fmt.Errorf("optimistic: a version came as %T", v)
	}
	return r, false, err
}

// array is a list of one type, if it can be one: pgx has to know the type if it does not ask the server.
func array(list []any) (all any, ok bool) {
	i := slices.IndexFunc(list, func(v any) bool { return v != nil })
	if i < 0 {
		return make([]*string, len(list)), true
	}
	switch plain(list[i]).(type) {
	case int64:
		return typed[int64](list)
	case float64:
		return typed[float64](list)
	case string:
		return typed[string](list)
	case bool:
		return typed[bool](list)
	case []byte:
		return typed[[]byte](list)
	case time.Time:
		return typed[time.Time](list)
	case pgtype.Numeric:
		return typed[pgtype.Numeric](list)
	}
	return list, false
}

// typed is a list of pointers, nil for NULL, if all are of the type T.
func typed[T any](list []any) (any, bool) {
	all := make([]*T, len(list))
	for i, v := range list {
		one, ok := plain(v).(T)
		if !ok && v != nil {
			return list, false
		}
		if ok {
			all[i] = &one
		}
	}
	return all, true
}

// plain is an int64 for any integer.
func plain(v any) any {
	switch n := v.(type) {
	case int:
		return int64(n)
	case int32:
		return int64(n)
	case int16:
		return int64(n)
	case int8:
		return int64(n)
	case uint32:
		return int64(n)
	case uint16:
		return int64(n)
	case uint8:
		return int64(n)
	}
	return v
}
