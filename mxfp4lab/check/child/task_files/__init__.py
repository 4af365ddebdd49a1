"""The modules that lie beside a submission: `task`, `utils`, `reference`, and on the emulator backend `aiter`."""
