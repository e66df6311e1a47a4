"""Language models that propose: what they are shown, what they are asked, what is made of it."""
