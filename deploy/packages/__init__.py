"""The .deb and .rpm of gpuwatch: what they hold, what they run as they come and go, and `build`, which makes them."""
