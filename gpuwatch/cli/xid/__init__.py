"""`gpuwatch xid`: the catalogue, the parser and the decoder of XID errors."""
