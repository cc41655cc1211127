//go:build !linux

package testdb

func useMemory() error { return nil }
