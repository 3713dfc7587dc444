"""What lies below the public interfaces of torch and of CPython: private names, and the switches of accelerations."""
