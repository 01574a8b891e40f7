"""torch's database of operations as the judge of ours: `make torch-ops`."""
