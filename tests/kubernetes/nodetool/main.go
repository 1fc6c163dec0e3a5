// Command nodetool is what a test node needs besides Kubernetes and containerd: its process 1, the pause program of pods, a
// device plugin that offers GPUs which do not exist, and the program that workloads of tests run.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = `usage:
  nodetool init                             reap orphans until killed
  nodetool pause                            reap orphans until SIGTERM
  nodetool device-plugin NODE COUNT LIBRARY offer COUNT GPUs; LIBRARY is mounted into containers as the NVIDIA driver's
  nodetool work GPUS SECONDS                exit with 0 after SECONDS if GPUS devices are visible`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "init":
		reap(make(chan os.Signal))
		return nil
	case len(args) == 1 && args[0] == "pause":
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
		reap(end)
		return nil
	case len(args) == 4 && args[0] == "device-plugin":
		count, err := strconv.Atoi(args[2])
		if err != nil {
			return fmt.Errorf("%q is not a number of GPUs", args[2])
		}
		return servePlugin(args[1], count, args[3])
	case len(args) == 3 && args[0] == "work":
		return work(args[1], args[2])
	}
	return fmt.Errorf("unknown arguments %q\n%s", args, usage)
}

// reap waits for orphaned processes, whose parent process 1 is, until a signal arrives.
func reap(end <-chan os.Signal) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-end:
			return
		case <-children:
			for {
				pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
				if err != nil || pid <= 0 {
					break
				}
			}
		}
	}
}

// work stands for a training program: it fails unless it sees as many GPUs as it needs.
func work(gpus, seconds string) error {
	needed, err := strconv.Atoi(gpus)
	if err != nil {
		return fmt.Errorf("%q is not a number of GPUs", gpus)
	}
	duration, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number of seconds", seconds)
	}
	var visible []string
	for _, device := range strings.Split(os.Getenv("NVIDIA_VISIBLE_DEVICES"), ",") {
		if strings.HasPrefix(device, "GPU-") {
			visible = append(visible, device)
		}
	}
	fmt.Println("visible devices:", strings.Join(visible, ","))
	if len(visible) != needed {
		return fmt.Errorf("%d GPUs are visible, not %d", len(visible), needed)
	}
	time.Sleep(time.Duration(duration * float64(time.Second)))
	return nil
}
