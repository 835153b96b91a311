"""The files of a healthy GPU server around the simulated driver: modules, libraries, runtime, kubelet, cluster.

Each module here is one area and gives its files as a pure function of the node; `HostTree` keeps them on the disk.
Whoever wants a broken host writes over them: a file is written again only when the node would show another text.
"""
