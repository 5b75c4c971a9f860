package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// StartTime is when a process started, in clock ticks since boot. With its pid
// it names one process for good: a number alone is given out again.
func StartTime(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command's name may hold anything, so fields count from the last ')'.
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, fmt.Errorf("/proc/%d/stat: no command", pid)
	}
	fields := bytes.Fields(stat[i+1:])
	const startTime = 22 - 3 // the fields after ')' begin with number 3
	if len(fields) <= startTime {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	return strconv.ParseUint(string(fields[startTime]), 10, 64)
}

// Alive says whether the process with this pid and start time still runs. One
// that is dead and not yet reaped does not.
func Alive(pid int, started uint64) bool {
	if pid <= 0 {
		return false
	}
	now, err := StartTime(pid)
	if err != nil || now != started {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[i+1:])
	return len(fields) > 0 && fields[0][0] != 'Z' && fields[0][0] != 'X'
}
