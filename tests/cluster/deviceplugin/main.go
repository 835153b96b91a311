// Reads a configuration file as NVIDIA's device plugin does at its start, and prints what it has understood.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	plugin "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
	"github.com/urfave/cli/v2"
)

type understood struct {
	Config   *plugin.Config         `json:"config"`
	Strategy plugin.SharingStrategy `json:"strategy"`
}

func main() {
	app := cli.NewApp()
	app.Flags = []cli.Flag{&cli.StringFlag{Name: "config-file"}}
	app.Action = func(context *cli.Context) error {
		config, err := plugin.NewConfig(context, nil)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(understood{config, config.Sharing.SharingStrategy()})
	}
	if err := app.Run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
