package mysqloptimistic

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// columnOf reads a line of SHOW COLUMNS.
func columnOf(line map[string]string) driver.Column {
	c := driver.Column{
		Name: line["Field"], Type: strings.ToLower(line["Type"]), Nullable: line["Null"] == "YES",
		Auto: strings.Contains(strings.ToLower(line["Extra"]), "auto_increment"),
	}
	c.UUID = slices.Contains([]string{"uuid", "binary(16)", "char(36)", "varchar(36)"}, c.Type)
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
	c.Class = classes[name]
	precision, scale := digitsOf(rest)
	switch {
	case name == "decimal" && precision-scale > wholeDigits:
		c.Class = driver.Inexact
	case c.Class == driver.DateTime:
		c.Precision, c.Zoned = precision, name == "timestamp" // no digits are none
	}
	return c
}

// classes are those of types other than integers. Types that are not here are compared inexactly.
var classes = map[string]driver.Class{
	"decimal": driver.Decimal, "date": driver.Date, "datetime": driver.DateTime, "timestamp": driver.DateTime, "uuid": driver.Identifier,
	"char": driver.Text, "varchar": driver.Text, "tinytext": driver.Text, "text": driver.Text, "mediumtext": driver.Text,
	"longtext": driver.Text, "enum": driver.Text,
	"binary": driver.Bytes, "varbinary": driver.Bytes, "tinyblob": driver.Bytes, "blob": driver.Bytes, "mediumblob": driver.Bytes,
	"longblob": driver.Bytes,
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

// Key refuses what the server would compare in a way of its own: a text with a number, in which 0
// is equal to every text without digits, and a write would hit many rows.
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
		if text, ok := textOf(plain); ok {
			return text, nil
		}
	case driver.Bytes:
		if bytes, ok := bytesOf(plain); ok {
			return bytes, nil
		}
	default:
		return nil, attempt.Invalid("key", "the column %q is of the type %s: keys are integers, texts or bytes", c.Name, c.Type)
	}
	return nil, attempt.Invalid("key", "a %T is not of the type %s of the column %q", key, c.Type, c.Name)
}

// keeps reports that a column is sure to keep a key as it is, whatever the settings of the session.
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

// plainOf is a value as an int64, a uint64, a string, a bool, a time, bytes or a [16]byte. A UUID
// is a [16]byte before it is what its Value returns.
func plainOf(field string, value any) (any, error) {
	of := reflect.ValueOf(value)
	for of.Kind() == reflect.Pointer && !of.IsNil() {
		of = of.Elem()
	}
	_, isValuer := value.(sqldriver.Valuer)
	switch {
	case of.CanUint() && !isValuer:
		return of.Uint(), nil
	case of.Kind() == reflect.Array && of.Type().ConvertibleTo(uuidType):
		return of.Convert(uuidType).Interface(), nil
	}
	plain, err := sqldriver.DefaultParameterConverter.ConvertValue(value)
	if _, isFloat := plain.(float64); isFloat || err != nil {
		return nil, attempt.Invalid(field, "a %T is neither a number, nor a text, nor bytes, nor a time: %v", value, err)
	}
	return plain, nil
}

var uuidType = reflect.TypeFor[[16]byte]()

func textOf(plain any) (string, bool) {
	switch v := plain.(type) {
	case string:
		return v, true
	case [16]byte:
		return driver.FormatUUID(v), true
	}
	return "", false
}

func bytesOf(plain any) ([]byte, bool) {
	switch v := plain.(type) {
	case []byte:
		return v, true
	case string:
		return []byte(v), true
	case [16]byte:
		return v[:], true
	}
	return nil, false
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
		if text, ok := textOf(plain); ok {
			return text, nil
		}
	case driver.Bytes:
		if bytes, ok := bytesOf(plain); ok {
			return bytes, nil
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
	return nil, attempt.Invalid("expected", "a %T (%.40v) is not of the type %s of the column %q", value, value, c.Type, c.Name)
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

// scan reads a version, which read selects, behind other columns.
func scan(rows *mysql.Rows, p *driver.Plan, others ...any) (r driver.Raw, err error) {
	bytes := make([]sql.RawBytes, len(p.Token))
	for i := range bytes {
		others = append(others, &bytes[i])
	}
	if err := rows.Scan(others...); err != nil {
		return r, err
	}
	switch {
	case p.Kind == driver.Columns:
		r.Values = make([]any, len(bytes))
		for i, b := range bytes {
			if b == nil {
				continue
			}
			if r.Values[i], err = valueOf(p.Token[i], b, p.Location); err != nil {
				return r, err
			}
		}
	case bytes[0] == nil:
		r.Void = true
	case p.Kind == driver.UUID && p.Token[0].Class == driver.Bytes:
		copy(r.U[:], bytes[0])
	case p.Kind == driver.UUID:
		r.U, err = driver.ParseUUID(string(bytes[0]))
	default:
		r.N, err = strconv.ParseInt(string(bytes[0]), 10, 64)
	}
	return r, err
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

// kindOf is how a server takes a value, as far as it makes a difference: the Go type that the
// driver sends. It is empty for NULL.
func kindOf(value any) string {
	plain, err := sqldriver.DefaultParameterConverter.ConvertValue(value)
	switch v := plain.(type) {
	case nil:
		if err != nil { // a uint64 of 64 bits, or an argument that the driver refuses
			return unsigned
		}
		return ""
	case float64: // interpolateParams makes another literal of one with an exponent
		if strings.Contains(strconv.FormatFloat(v, 'g', -1, 64), "e") {
			return "float64 with an exponent"
		}
	}
	return fmt.Sprintf("%T", plain)
}

const unsigned = "uint64"
