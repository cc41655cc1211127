package pgscript

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

var (
	errEmptyRange = errors.New("empty range given to random")
	errLargeRange = errors.New("random range is too large")
)

// distribution draws an integer from 1 to n.
type distribution func(r *rand.Rand, n int64, parameter float64) (int64, error)

// random makes a function of a lower and an upper bound out of a distribution.
func random(draw distribution) func(*Session, []value) (value, error) {
	return func(s *Session, args []value) (value, error) {
		low, err := args[0].integer()
		if err != nil {
			return value{}, err
		}
		high, err := args[1].integer()
		if err != nil {
			return value{}, err
		}
		if low > high {
			return value{}, errEmptyRange
		}
		width := uint64(high) - uint64(low)
		if width >= math.MaxInt64 {
			return value{}, errLargeRange
		}
		var parameter float64
		if len(args) > 2 {
			parameter = args[2].double()
		}
		n := int64(width) + 1
		drawn, err := draw(s.random, n, parameter)
		if err != nil {
			return value{}, err
		}
		return integer(low - 1 + min(max(drawn, 1), n)), nil // rounding may take it out by one
	}
}

func uniform(r *rand.Rand, n int64, _ float64) (int64, error) { return 1 + r.Int64N(n), nil }

// exponential has its density fall to exp(-parameter) at the upper bound.
func exponential(r *rand.Rand, n int64, parameter float64) (int64, error) {
	if !(parameter > 0) {
		return 0, fmt.Errorf("exponential parameter must be greater than zero (not %v)", parameter)
	}
	cut := math.Exp(-parameter)
	u := 1 - r.Float64() // never 0
	return 1 + int64(float64(n)*-math.Log(cut+(1-cut)*u)/parameter), nil
}

// gaussian cuts the curve off at parameter times the standard deviation, on either side.
func gaussian(r *rand.Rand, n int64, parameter float64) (int64, error) {
	if !(parameter >= 2) {
		return 0, fmt.Errorf("gaussian parameter must be at least 2 (not %v)", parameter)
	}
	for {
		if x := r.NormFloat64(); x >= -parameter && x < parameter {
			return 1 + int64(float64(n)*(x+parameter)/(parameter*2)), nil
		}
	}
}

// zipfian draws by rejection: Devroye, "Non-Uniform Random Variate Generation", page 550.
func zipfian(r *rand.Rand, n int64, s float64) (int64, error) {
	if !(s >= 1.001 && s <= 1000) {
		return 0, fmt.Errorf("zipfian parameter must be in range [1.001, 1000] (not %v)", s)
	}
	if n == 1 {
		return 1, nil
	}
	b := math.Pow(2, s-1)
	for {
		u, v := r.Float64(), r.Float64()
		x := math.Floor(math.Pow(u, -1/(s-1)))
		t := math.Pow(1+1/x, s-1)
		if v*x*(t-1)/(b-1) <= t/b && x <= float64(n) {
			return int64(x), nil
		}
	}
}
