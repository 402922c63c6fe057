"""The program behind `make rules`: compare the rules of docs/spec with the tests that pin them."""
