"""`rankscope verify`: is a job that runs on the fast path, and does it train as it should?"""
