"""`rankscope verify`: does a running job use the fast path, and does it train as it should?"""
