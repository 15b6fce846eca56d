"""Checks of a training job before it runs, from its manifests: will it get the fast path?"""
