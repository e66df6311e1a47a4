"""One description of a layer's work, priced for memory and for time."""
