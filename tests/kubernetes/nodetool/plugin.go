package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource = "nvidia.com/gpu"
	endpoint = "nvidia-gpu.sock"
	// A kubelet that starts on a busy machine answers late. A second registration would be worse than waiting: the end of the
	// first one then takes the devices of the second away.
	patience = time.Minute
	// Where the NVIDIA container runtime mounts the driver's library.
	driverLibrary = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
)

// plugin offers the GPUs of a node, as NVIDIA's device plugin does.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	devices []*v1beta1.Device
	library string
}

// servePlugin registers with every kubelet that starts on the node: a new one has forgotten its plugins.
func servePlugin(node string, count int, library string) error {
	own := &plugin{library: library}
	for number := range count {
		id := fmt.Sprintf("GPU-%s-%04d", node, number)
		own.devices = append(own.devices, &v1beta1.Device{ID: id, Health: v1beta1.Healthy})
	}
	last := ""
	for {
		if err := own.serveKubelet(); err != nil && err.Error() != last {
			last = err.Error()
			fmt.Fprintln(os.Stderr, last)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// serveKubelet serves until the kubelet's socket is replaced. A kubelet that starts deletes the sockets of all plugins.
func (p *plugin) serveKubelet() error {
	kubelet, err := os.Stat(v1beta1.KubeletSocket)
	if err != nil {
		return fmt.Errorf("no kubelet yet: %w", err)
	}
	path := v1beta1.DevicePluginPath + endpoint
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	v1beta1.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	if err := register(); err != nil {
		return err
	}
	for {
		time.Sleep(200 * time.Millisecond)
		current, err := os.Stat(v1beta1.KubeletSocket)
		// The new socket may have the number of the old one.
		if err != nil || !os.SameFile(kubelet, current) || !kubelet.ModTime().Equal(current.ModTime()) {
			return fmt.Errorf("the kubelet was restarted")
		}
	}
}

func register() error {
	connection, err := grpc.NewClient("unix://"+v1beta1.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	timeout, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request := &v1beta1.RegisterRequest{Version: v1beta1.Version, Endpoint: endpoint, ResourceName: resource}
	if _, err := v1beta1.NewRegistrationClient(connection).Register(timeout, request); err != nil {
		return fmt.Errorf("cannot register with the kubelet: %w", err)
	}
	return nil
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	fmt.Println("devices offered")
	<-stream.Context().Done()
	return nil
}

// Allocate makes the chosen devices visible, in the way of NVIDIA's container runtime.
func (p *plugin) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	response := &v1beta1.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &v1beta1.ContainerAllocateResponse{
			Envs:   map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
			Mounts: []*v1beta1.Mount{{HostPath: p.library, ContainerPath: driverLibrary, ReadOnly: true}},
		})
	}
	return response, nil
}
