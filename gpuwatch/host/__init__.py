"""Facts of this machine: PCI, load, boot id, plain files. It imports the model only."""
