"""`python -m autograd_opt`, the same as `autograd-opt`."""

from autograd_opt.cli.main import main

if __name__ == "__main__":
    main()
