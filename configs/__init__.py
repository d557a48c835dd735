"""Hydra's YAML files, installed as `trainers.configs`."""
