"""How right the oracle is: measured rows beside what it says of them, and statistics of that."""
