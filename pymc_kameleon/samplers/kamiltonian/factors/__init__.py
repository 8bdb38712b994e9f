"""With emulators of a model's black boxes, one by one."""
