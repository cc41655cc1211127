package conformance

import "testing"

func (e Inventory) SurvivesFaults(t *testing.T) {}
