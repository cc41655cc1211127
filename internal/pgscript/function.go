package pgscript

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// function is one that expressions may call.
type function struct {
	least, most int // arguments; -1 for any number
	eval        func(s *Session, args []value) (value, error)
}

func (f *function) takes() string {
	switch {
	case f.most < 0:
		return "one argument or more"
	case f.most == 0:
		return "no arguments"
	case f.most == 1:
		return "1 argument"
	default:
		return fmt.Sprintf("%d arguments", f.most)
	}
}

var functions = map[string]*function{
	"abs":                {1, 1, abs},
	"double":             real1(func(x float64) float64 { return x }),
	"exp":                real1(math.Exp),
	"greatest":           {1, -1, extreme(func(sign int) bool { return sign > 0 })},
	"int":                {1, 1, toInteger},
	"least":              {1, -1, extreme(func(sign int) bool { return sign < 0 })},
	"ln":                 real1(math.Log),
	"mod":                {2, 2, func(_ *Session, a []value) (value, error) { return calculate('%', a[0], a[1]) }},
	"pi":                 {0, 0, func(*Session, []value) (value, error) { return double(math.Pi), nil }},
	"pow":                {2, 2, power},
	"power":              {2, 2, power},
	"random":             {2, 2, random(uniform)},
	"random_exponential": {3, 3, random(exponential)},
	"random_gaussian":    {3, 3, random(gaussian)},
	"random_zipfian":     {3, 3, random(zipfian)},
	"sqrt":               real1(math.Sqrt),
}

var functionNames = strings.Join(slices.Sorted(maps.Keys(functions)), ", ")

// real1 is a function of one double.
func real1(f func(float64) float64) *function {
	return &function{1, 1, func(_ *Session, args []value) (value, error) { return double(f(args[0].double())), nil }}
}

func power(_ *Session, args []value) (value, error) {
	return double(math.Pow(args[0].double(), args[1].double())), nil
}

func toInteger(_ *Session, args []value) (value, error) {
	i, err := args[0].integer()
	return integer(i), err
}

var errAbs = errors.New("integer out of range in abs")

func abs(_ *Session, args []value) (value, error) {
	switch v := args[0]; {
	case v.isDouble:
		return double(math.Abs(v.f)), nil
	case v.i == math.MinInt64:
		return value{}, errAbs
	case v.i < 0:
		return integer(-v.i), nil
	default:
		return v, nil
	}
}

// extreme is a double when any of the arguments is.
func extreme(better func(sign int) bool) func(*Session, []value) (value, error) {
	return func(_ *Session, args []value) (value, error) {
		best := args[0]
		for _, v := range args[1:] {
			if v.isDouble || best.isDouble {
				v, best = double(v.double()), double(best.double())
			}
			if better(compare(v, best)) {
				best = v
			}
		}
		return best, nil
	}
}

// compare two numbers of one type.
func compare(a, b value) int {
	switch {
	case a.isDouble && a.f > b.f, !a.isDouble && a.i > b.i:
		return 1
	case a.isDouble && a.f < b.f, !a.isDouble && a.i < b.i:
		return -1
	default:
		return 0
	}
}
