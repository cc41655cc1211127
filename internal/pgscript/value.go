package pgscript

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// value is a number of either of pgbench's two types.
type value struct {
	isDouble bool
	i        int64
	f        float64
}

func integer(i int64) value  { return value{i: i} }
func double(f float64) value { return value{isDouble: true, f: f} }

func (v value) double() float64 {
	if v.isDouble {
		return v.f
	}
	return float64(v.i)
}

var (
	errNoInteger   = errors.New("a double that is no integer")
	errDivision    = errors.New("division by zero")
	errAdd         = errors.New("integer out of range in +")
	errSubtract    = errors.New("integer out of range in -")
	errMultiply    = errors.New("integer out of range in *")
	errDivideRange = errors.New("integer out of range in /")
)

// integer rounds, half to even.
func (v value) integer() (int64, error) {
	if !v.isDouble {
		return v.i, nil
	}
	f := math.RoundToEven(v.f)
	if !(f >= math.MinInt64 && f < -math.MinInt64) { // a NaN is neither
		return 0, errNoInteger
	}
	return int64(f), nil
}

// slot holds a variable.
type slot struct {
	value
	text   string // what it was defined as, which SQL gets as it is
	isText bool
}

// definedAs reads a value that was defined outside of the script; not every text is a number.
func definedAs(text string) (s slot, isWord bool) {
	s = slot{text: text, isText: true}
	trimmed := strings.TrimSpace(text)
	if i, err := strconv.ParseInt(trimmed, 10, 64); err == nil {
		s.value = integer(i)
		return s, false
	}
	f, err := strconv.ParseFloat(trimmed, 64)
	s.value = double(f)
	return s, err != nil
}

// calculate does what stands between two numbers. One double makes the result a double, except of %.
func calculate(op byte, a, b value) (value, error) {
	if op != '%' && (a.isDouble || b.isDouble) {
		x, y := a.double(), b.double()
		switch op {
		case '+':
			return double(x + y), nil
		case '-':
			return double(x - y), nil
		case '*':
			return double(x * y), nil
		default:
			return double(x / y), nil // an infinity, if need be, as in pgbench
		}
	}
	x, err := a.integer()
	if err != nil {
		return value{}, err
	}
	y, err := b.integer()
	if err != nil {
		return value{}, err
	}
	i, err := calculateIntegers(op, x, y)
	return integer(i), err
}

func calculateIntegers(op byte, x, y int64) (int64, error) {
	switch op {
	case '+':
		if y > 0 && x > math.MaxInt64-y || y < 0 && x < math.MinInt64-y {
			return 0, errAdd
		}
		return x + y, nil
	case '-':
		if y < 0 && x > math.MaxInt64+y || y > 0 && x < math.MinInt64+y {
			return 0, errSubtract
		}
		return x - y, nil
	case '*':
		return multiply(x, y)
	}
	switch {
	case y == 0:
		return 0, errDivision
	case op == '%' && y == -1: // the machine's own division would stop at the smallest integer
		return 0, nil
	case op == '%':
		return x % y, nil
	case y == -1 && x == math.MinInt64:
		return 0, errDivideRange
	default:
		return x / y, nil
	}
}

func multiply(x, y int64) (int64, error) {
	high, low := bits.Mul64(absolute(x), absolute(y))
	limit := uint64(math.MaxInt64)
	if negative := (x < 0) != (y < 0); negative {
		limit++
	}
	if high != 0 || low > limit {
		return 0, errMultiply
	}
	return x * y, nil
}

func absolute(x int64) uint64 {
	if x < 0 {
		return -uint64(x)
	}
	return uint64(x)
}

// append writes a number as pgbench does: a double in 15 digits.
func (v value) append(dst []byte) []byte {
	switch {
	case !v.isDouble:
		return strconv.AppendInt(dst, v.i, 10)
	case math.IsInf(v.f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(v.f, -1):
		return append(dst, "-Infinity"...)
	default:
		return strconv.AppendFloat(dst, v.f, 'g', 15, 64)
	}
}
