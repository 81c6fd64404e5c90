-- Which versions of the tables of each component are there. The key answers for the newest version of a component.
CREATE TABLE IF NOT EXISTS {schema}.migrations (
    component  text        NOT NULL,
    version    integer     NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (component, version)
);
