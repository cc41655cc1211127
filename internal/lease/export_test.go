package lease

// Known counts the handles that the Lockers of a share know.
func Known[E Engine](s *Share[E]) int {
	h := &s.reconciler.handles
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.known)
}
