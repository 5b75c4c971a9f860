package report

import (
	"os"
	"testing"

	"github.com/kubedyno/kubedyno/report/browsertest"
)

func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }
