"""What the console's page asks for, as JSON: a module for each subject."""
