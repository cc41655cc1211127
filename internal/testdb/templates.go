package testdb

import (
	"os"
	"path/filepath"
)

const envTemplates = "DBLOCK_TEMPLATES"

// useTemplates has servers start from copies of data folders that were made once for this user. To
// make one takes 0.5 to 3 seconds of processor time, and every package starts two servers or more.
func useTemplates() error {
	if _, set := os.LookupEnv(envTemplates); set {
		return nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil // without a home each server makes its own
	}
	return os.Setenv(envTemplates, filepath.Join(cache, "dblock-test-servers"))
}
