package pgqueue_test

import "testing"

func TestHerald(t *testing.T) {
	t.Parallel()
	engine.RunHerald(t)
}
