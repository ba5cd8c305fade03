class Rows:
    def __getitem__(self, at):
        return self.rows[at]
