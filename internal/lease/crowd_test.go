//go:build !race

package lease_test

const crowd = 10_000
