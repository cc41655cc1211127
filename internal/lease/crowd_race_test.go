//go:build race

package lease_test

const crowd = 2_000 // the race detector takes no more than 8,128 goroutines
