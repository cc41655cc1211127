package mysqloptimistic

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// columnOf reads a line of SHOW COLUMNS.
func columnOf(line map[string]string) driver.Column {
	c := driver.Column{
		Name: line["Field"], Type: strings.ToLower(line["Type"]), Nullable: line["Null"] == "YES",
		Auto: strings.Contains(strings.ToLower(line["Extra"]), "auto_increment"),
	}
	name, rest, _ := strings.Cut(c.Type, "(")
	name, unsigned, _ := strings.Cut(name, " ")
	if strings.Contains(rest, "unsigned") || strings.Contains(unsigned, "unsigned") {
		unsigned = "unsigned"
	}
	if bits := map[string]uint{"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}[name]; bits > 0 {
		c.Class, c.Max = driver.Integer, 1<<(bits-1)-1
		if unsigned == "unsigned" && bits < 64 { // versions are int64 in Go
			c.Max = 1<<bits - 1
		}
		return c
	}
	switch name {
	case "decimal":
		if precision, scale := digitsOf(rest); precision-scale <= wholeDigits {
			c.Class = driver.Decimal
		}
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum":
		c.Class = driver.Text
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		c.Class = driver.Bytes
	case "date":
		c.Class = driver.Date
	case "datetime", "timestamp":
		if c.Class = driver.DateTime; name == "timestamp" {
			c.Class = driver.Instant
		}
		digits, _, _ := strings.Cut(rest, ")")
		c.Precision, _ = strconv.Atoi(digits) // none are none
	case "uuid":
		c.Class = driver.Identifier
	}
	return c
}

// wholeDigits is how many digits before the point a number may have that the server compares with
// no loss, as it compares all numbers at the greatest scale.
const wholeDigits = 65 - 30

// digitsOf reads "12,2)", the end of decimal(12,2).
func digitsOf(rest string) (precision, scale int) {
	digits, _, _ := strings.Cut(rest, ")")
	before, after, _ := strings.Cut(digits, ",")
	precision, _ = strconv.Atoi(before)
	scale, _ = strconv.Atoi(after)
	return precision, scale
}

func refused(field, format string, args ...any) error {
	return &dblock.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Key refuses what the server would compare in a way of its own: a text with a number, in which 0 is equal to every text without
// digits, and a write would hit many rows.
func (dialect) Key(c driver.Column, key any) (any, error) {
	plain, err := plainOf("key", key)
	if err != nil {
		return nil, err
	}
	switch c.Class {
	case driver.Integer:
		switch plain.(type) {
		case int64, uint64:
			return plain, nil
		}
	case driver.Text, driver.Identifier:
		switch v := plain.(type) {
		case string:
			return v, nil
		case [16]byte:
			return driver.FormatUUID(v), nil
		}
	case driver.Bytes:
		switch v := plain.(type) {
		case []byte:
			return v, nil
		case string:
			return []byte(v), nil
		case [16]byte:
			return v[:], nil
		}
	default:
		return nil, refused("key", "the column %q is of the type %s: keys are integers, texts or bytes", c.Name, c.Type)
	}
	return nil, refused("key", "a %T is not of the type %s of the column %q", key, c.Type, c.Name)
}

// keeps tells that a column is sure to keep a key as it is, whatever the settings of the session.
func keeps(c driver.Column, key any) bool {
	name, rest, _ := strings.Cut(c.Type, "(")
	length, _ := digitsOf(rest)
	switch k := key.(type) {
	case int64:
		if strings.Contains(c.Type, "unsigned") {
			return k >= 0 && uint64(k) <= c.Max
		}
		return k >= -int64(c.Max)-1 && (k < 0 || uint64(k) <= c.Max) //nolint:gosec // Max is that of an int64
	case uint64:
		return k <= c.Max
	case []byte:
		return name == "varbinary" && len(k) <= length || name == "binary" && len(k) == length
	case string:
		plain := !strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' })
		return plain && (name == "char" || name == "varchar") && len(k) <= length
	}
	return false
}

// plainOf is a value of a few types.
func plainOf(field string, value any) (any, error) {
	switch v := value.(type) {
	case int64, uint64, string, []byte, time.Time, [16]byte, bool:
		return v, nil
	case int:
		return int64(v), nil
	}
	of := reflect.ValueOf(value)
	if of.Kind() == reflect.Array && of.Len() == 16 && of.Type().Elem().Kind() == reflect.Uint8 {
		return of.Convert(reflect.TypeFor[[16]byte]()).Interface(), nil
	}
	if valuer, ok := value.(sqldriver.Valuer); ok {
		v, err := valuer.Value()
		if err != nil {
			return nil, refused(field, "%v", err)
		}
		return v, nil
	}
	switch of.Kind() {
	case reflect.Pointer:
		if of.IsNil() {
			return nil, nil
		}
		return plainOf(field, of.Elem().Interface())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return of.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return of.Uint(), nil
	case reflect.String:
		return of.String(), nil
	case reflect.Bool:
		return of.Bool(), nil
	case reflect.Slice:
		if of.Type().Elem().Kind() == reflect.Uint8 {
			return of.Bytes(), nil
		}
	}
	return nil, refused(field, "a %T is neither a number, nor a text, nor bytes, nor a time", value)
}

var number = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+)?$`)

// Value is what a column is compared with: the server is given texts, which it casts.
func (dialect) Value(c driver.Column, value any) (any, error) {
	plain, err := plainOf("expected", value)
	if err != nil || plain == nil {
		return nil, err
	}
	if b, ok := plain.([]byte); ok && c.Class != driver.Bytes { // as drivers return texts
		plain = string(b)
	}
	switch c.Class {
	case driver.Integer, driver.Decimal:
		if b, ok := plain.(bool); ok {
			plain = map[bool]int64{true: 1}[b]
		}
		if text := fmt.Sprint(plain); number.MatchString(text) {
			return text, nil
		}
	case driver.Text, driver.Identifier:
		switch v := plain.(type) {
		case string:
			return v, nil
		case [16]byte:
			return driver.FormatUUID(v), nil
		}
	case driver.Bytes:
		switch v := plain.(type) {
		case []byte:
			return v, nil
		case string:
			return []byte(v), nil
		case [16]byte:
			return v[:], nil
		}
	case driver.Date, driver.DateTime:
		switch v := plain.(type) {
		case string:
			return v, nil
		case time.Time:
			if v.IsZero() { // the driver sends 0000-00-00, which the server casts to NULL
				return instant(v.UnixMicro()), nil
			}
			return v.Truncate(time.Microsecond), nil // the driver converts it to its location, as a value that is set
		}
	}
	return nil, refused("expected", "a %T (%.40v) is not of the type %s of the column %q", value, value, c.Type, c.Name)
}

func instant(n int64) string { return time.UnixMicro(n).UTC().Format("2006-01-02 15:04:05.000000") }

func uuid(c driver.Column, u [16]byte) any {
	if c.Class == driver.Bytes {
		return u[:]
	}
	return driver.FormatUUID(u)
}

// expected appends the arguments that a version is compared with.
func expected(args []any, p *driver.Plan, r driver.Raw) []any {
	switch p.Kind {
	case driver.Int:
		return append(args, r.N)
	case driver.Timestamp:
		return append(args, instant(r.N))
	case driver.UUID:
		return append(args, uuid(p.Token[0], r.U))
	default:
		return append(args, r.Sent...)
	}
}

// version is one that is being read: see read.
type version struct {
	bytes  []sql.RawBytes
	places []any
}

func versions(p *driver.Plan) version {
	v := version{bytes: make([]sql.RawBytes, len(p.Token))}
	for i := range v.bytes {
		v.places = append(v.places, &v.bytes[i])
	}
	return v
}

// raw is a version as it was read; void, if it is NULL.
func (v version) raw(p *driver.Plan) (r driver.Raw, void bool, err error) {
	text := v.bytes[0]
	switch {
	case p.Kind == driver.Columns:
		r.Values = make([]any, len(v.bytes))
		for i, b := range v.bytes {
			if b == nil {
				continue
			}
			if r.Values[i], err = valueOf(p.Token[i], b, p.Location); err != nil {
				return r, false, err
			}
		}
	case text == nil:
		return r, true, nil
	case p.Kind == driver.UUID && p.Token[0].Class == driver.Bytes:
		copy(r.U[:], text)
	case p.Kind == driver.UUID:
		r.U, err = driver.ParseUUID(string(text))
	default:
		r.N, err = strconv.ParseInt(string(text), 10, 64)
	}
	return r, false, err
}

// valueOf is a value of Columns in Go's types: int64 or uint64, a time in the driver's location,
// []byte, else a string. A date without a day, such as 0000-00-00, is a string.
func valueOf(c driver.Column, b []byte, in *time.Location) (any, error) {
	switch c.Class {
	case driver.Integer:
		if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
			return n, nil
		}
		return strconv.ParseUint(string(b), 10, 64)
	case driver.DateTime:
		if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
			wall := time.UnixMicro(n).UTC()
			return time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), in), nil
		}
	case driver.Bytes:
		return append([]byte{}, b...), nil
	}
	return string(b), nil
}

// kind is how the driver sends a value, as far as the server makes a difference. It is 0 for NULL.
type kind uint8

const (
	signed kind = iota + 1
	unsigned
	float
	scientific // a float with an exponent, which interpolateParams makes another literal of
	boolean
	text
	raw
	moment
	other
)

// kindOf is the kind of a value, as the driver converts it.
func kindOf(value any) kind {
	switch v := value.(type) {
	case nil:
		return 0
	case time.Time:
		return moment
	case sqldriver.Valuer:
		if of := reflect.ValueOf(v); of.Kind() == reflect.Pointer && of.IsNil() {
			return 0
		}
		plain, err := v.Value()
		if err != nil {
			return other // the driver says why
		}
		if _, again := plain.(sqldriver.Valuer); again {
			return other
		}
		return kindOf(plain)
	}
	switch of := reflect.ValueOf(value); of.Kind() {
	case reflect.Pointer:
		if of.IsNil() {
			return 0
		}
		return kindOf(of.Elem().Interface())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return signed
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return unsigned
	case reflect.Float32, reflect.Float64:
		if strings.Contains(strconv.FormatFloat(of.Float(), 'g', -1, 64), "e") {
			return scientific
		}
		return float
	case reflect.Bool:
		return boolean
	case reflect.String:
		return text
	case reflect.Slice:
		if of.IsNil() {
			return 0
		}
		return raw
	}
	return other
}
