package pgoptimistic

import (
	"fmt"
	"reflect"
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

// rawOf is a version of what pgx has read.
func rawOf(p *driver.Plan, values []any) (r driver.Raw, err error) {
	if p.Kind == driver.Columns {
		r.Values = values
		return r, nil
	}
	switch v := values[0].(type) {
	case nil:
		r.Void = true
	case int64:
		r.N = v
	case string:
		r.U, err = driver.ParseUUID(v)
	default:
		err = fmt.Errorf("optimistic: a version came as %T", v)
	}
	return r, err
}

// version reads one, which read selects, and nothing else.
func version(p *driver.Plan, rows pgx.Rows) (driver.Raw, error) {
	values, err := rows.Values()
	if err != nil {
		return driver.Raw{}, err
	}
	return rawOf(p, values)
}

// array is a list of pointers to values of one Go type, nil for NULL, if it can be one. pgx has to
// know the type if it does not ask the server.
func array(list []any) (all any, ok bool) {
	i := slices.IndexFunc(list, func(v any) bool { return !isNull(v) })
	if i < 0 {
		return make([]*string, len(list)), true
	}
	of := reflect.TypeOf(plain(list[i]))
	if !slices.Contains(arrayTypes, of) {
		return list, false
	}
	pointers := reflect.MakeSlice(reflect.SliceOf(reflect.PointerTo(of)), len(list), len(list))
	for i, v := range list {
		if isNull(v) {
			continue
		}
		one := reflect.ValueOf(plain(v))
		if one.Type() != of {
			return list, false
		}
		pointers.Index(i).Set(reflect.New(of))
		pointers.Index(i).Elem().Set(one)
	}
	return pointers.Interface(), true
}

// isNull reports that pgx sends a value as NULL: in an array it takes a nil []byte for a text that
// is empty.
func isNull(v any) bool {
	bytes, is := v.([]byte)
	return v == nil || is && bytes == nil
}

var arrayTypes = []reflect.Type{
	reflect.TypeFor[int64](), reflect.TypeFor[float64](), reflect.TypeFor[string](), reflect.TypeFor[bool](),
	reflect.TypeFor[[]byte](), reflect.TypeFor[time.Time](), reflect.TypeFor[pgtype.Numeric](),
}

// plain is an int64 for any integer of Go's types that one can hold.
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
