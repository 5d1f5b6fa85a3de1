"""The functions that programs call. They combine packages of the library, and ``import litelog`` offers them."""
